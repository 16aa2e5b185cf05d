"""The paper, reproduced: its rivals, tables, figures and readings, measured with `kscn`."""
