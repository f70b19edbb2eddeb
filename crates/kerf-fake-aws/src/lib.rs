//! A stand-in for AWS with its rules: capacity that runs dry, quotas, throttling, eventual consistency, spot warnings.
