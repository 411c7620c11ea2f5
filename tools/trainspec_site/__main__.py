"""The only place where the building of the site starts: `python -m trainspec_site`."""

import sys

from trainspec_site.build import main

sys.exit(main())
