"""Every document that crosses a site's border, a file each."""
