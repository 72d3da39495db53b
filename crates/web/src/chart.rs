//! Charts, drawn on the server as SVG.
//!
//! ```
//! use hob_web::chart::{Line, Unit};
//!
//! let noon = 1_763_208_000_000;
//! let chart = Line::new(noon..noon + 3_600_000)
//!     .title("Response time")
//!     .unit(Unit::Millis)
//!     .series("p50", (0..60).map(|minute| (noon + minute * 60_000, 12.0)))
//!     .series("p99", (0..60).map(|minute| (noon + minute * 60_000, 80.0 + minute as f64)))
//!     .render();
//! assert!(chart.as_str().starts_with("<figure"));
//! ```
//!
//! Existing crates write fixed colours and sizes into the SVG. These charts take their colours from the stylesheet, so
//! that they work in light and dark mode, keep their text at one size at any width, and have no inline styles, which the
//! content security policy of the console forbids.
//!
//! - The plot is stretched to the available width; text and strokes are not stretched.
//! - Unknown values are gaps: NaN, or a time between two points that is much longer than the usual step.
//! - Each column has its numbers in a `<title>`, which browsers show on hover. `live.js` shows them at once, also for the
//!   chart that has the keyboard focus, whose columns the arrow keys select.
//! - For screen readers, a chart is one image with a summary, and a table with at most 24 rows of its values.
//! - What has the same name has the same colour in every chart.
//! - Series beyond [`MAX_SERIES`] are not drawn, points beyond the width of a screen are reduced to the extremes, and
//!   only numbers that are valid in SVG are written. So the size of a chart is bounded.

mod axis;
mod bars;
mod canvas;
mod frame;
mod heartbeat;
mod heatmap;
mod histogram;
mod line;
mod range;
mod series;
mod shares;
mod spark;
#[cfg(test)]
mod tests;

pub use bars::Bars;
pub use heartbeat::{Beat, Heartbeat, Pulse};
pub use heatmap::HeatMap;
pub use histogram::Histogram;
pub use line::Line;
pub use range::{RangeQuery, Span, TimeRange};
pub use series::{MAX_SERIES, Point};
pub use shares::Shares;
pub use spark::Spark;

pub use crate::components::Unit;
