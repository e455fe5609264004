"""What every service needs once: settings, the run loop and drain, health, metrics, logging, backoff, the clock."""
