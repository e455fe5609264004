"""python -m holdfast_recovery"""

import sys

from holdfast_recovery.service import run

sys.exit(run())
