"""What every service needs once: settings, run loop and drain, health, metrics, logging."""
