"""What may leave a site: its policy, the figures that are held against it, the verdict."""
