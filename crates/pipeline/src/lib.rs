//! Pipelines: quota-bound, resumable fetching with many workers.
