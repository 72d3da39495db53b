//! Histograms with a fixed relative error that are merged exactly, and the varints that they are stored in.
//!
//! A [`Histogram`] counts values by [`Bucket`]. Buckets are log-linear: each power of two is divided into `2^BITS` buckets
//! of equal width, so that a bucket is at most `1 / 2^BITS` of its values wide. This is the layout of an HdrHistogram;
//! `BITS = 10` equals three significant digits. Histograms with equal `BITS` have the same buckets, so merging adds counts,
//! and the result does not depend on how the values were divided.
//!
//! A [`Histogram`] holds the buckets that are not empty. Where every request is recorded, use a [`Recorder`], or an
//! [`AtomicRecorder`] if several threads share it: they hold all buckets, and recording neither searches nor allocates.
//!
//! ```
//! use hob_histogram::{Histogram, Recorder};
//!
//! let mut recorder = Recorder::<6>::new(60_000_000);
//! (1..=1000).for_each(|us| recorder.record(us));
//! let mut all: Histogram<6> = recorder.drain();
//! all.merge(&Histogram::decode(&all.encode())?);
//! assert_eq!(all.count(), 2000);
//!
//! let p99 = all.quantile(0.99).expect("there are values");
//! assert!((p99.lowest()..=p99.highest()).contains(&990));
//! # Ok::<(), hob_histogram::DecodeError>(())
//! ```

mod bucket;
mod codec;
mod histogram;
mod recorder;
pub mod varint;

pub use bucket::Bucket;
pub use histogram::Histogram;
pub use recorder::{AtomicRecorder, Recorder};
pub use varint::DecodeError;
