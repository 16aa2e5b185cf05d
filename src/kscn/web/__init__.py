"""What a run can do over HTTP: label new samples (`serve`), and be looked through (`explore`)."""
