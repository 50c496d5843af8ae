"""The boards: what NVML tells of them."""
