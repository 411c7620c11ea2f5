"""Builds the site: `python -m trainspec_site`."""

import sys

from trainspec_site.build import main

sys.exit(main())
