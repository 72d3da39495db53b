//! Load tests: plans, a queue of runs, runners with a generator of their own, live metrics, reports.

pub mod generator;
pub mod plan;
mod report;
mod second;
mod spread;
mod tally;
mod wire;

pub use report::{Bar, FaultCount, Report, StepReport};
pub use second::{Fault, General, Second, StepSecond};
pub use spread::{Spread, Summary};
pub use tally::{HEAT_ROWS, Point, Tally, Verdict, per_cent};
pub use wire::BadBytes;
