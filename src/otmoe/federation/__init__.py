"""Sites that exchange files, by hand or by Flower."""
