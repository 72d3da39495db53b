//! Gateway: request metrics and rate limits in front of any HTTP service.
