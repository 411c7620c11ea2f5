"""The only place for what the published site has beside text: markup, generated pages, versions, playground."""
