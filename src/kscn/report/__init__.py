"""What a run looks like: pictures and pages made of a fitted model."""
