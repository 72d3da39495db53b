//! Load tests: plans, queue, runners, live metrics, reports.
