"""python -m holdfast_relay"""

import sys

from holdfast_relay.service import run

sys.exit(run())
