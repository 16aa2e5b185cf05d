"""Run directories: what a fit leaves on disk, read and written in one place."""
