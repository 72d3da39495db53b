//! An in-process store that speaks a documented subset of Redis.
