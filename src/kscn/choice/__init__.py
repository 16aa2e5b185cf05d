"""What chooses the clusters of `KSCNPlus`: candidates, their measure, growth to all samples."""
