"""The parts of the published site other than text: markup, generated pages, versions, playground."""
