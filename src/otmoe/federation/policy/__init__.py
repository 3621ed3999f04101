"""What may leave a site: its policy, the figures that it limits, the verdict."""
