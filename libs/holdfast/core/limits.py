"""The limits that the kernel itself holds. Limits at the edge (sizes, names) are in `holdfast.contracts.limits`."""

events_per_execution_max = 50_000
events_per_execution_warn = 10_000
no_handler_patience_s = 60.0
hand_back_delay_initial_s = 1.0
hand_back_delay_cap_s = 5.0
