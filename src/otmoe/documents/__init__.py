"""Every document that enters or leaves a site, one module each."""
