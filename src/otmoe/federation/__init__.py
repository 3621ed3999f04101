"""Sites that exchange files, manually or with Flower."""
