//! How things look in the console: numbers with units, times, states, and the small parts that pages are made of.
//!
//! Everything here is a value that shows itself as HTML with whatever is foreign in it escaped; templates write
//! `{{ value }}` without a filter. Plain HTML is styled by itself, so a page needs few classes:
//!
//! | class | on | is |
//! |---|---|---|
//! | `panel` | `section` | a bordered part of a page with an `h2` |
//! | `page-head` | `div` | what stands below the heading: a state, links, what to press |
//! | `stack` | `div` | parts one below the other |
//! | `grid` | `div` | parts side by side, as many as there is room for |
//! | `row` | `div` | things on one line, wrapped where it is narrow |
//! | `table` | `div` around a `table` | a table that scrolls sideways by itself |
//! | `wrap` | `td` | long text, which may break |
//! | `num` | `td`, `th` | a number, aligned at the right |
//! | `vitals` | `dl` | a few large numbers with their names |
//! | `facts` | `dl` | names and values ([`Facts`]) |
//! | `notice` and a tone's class | `p`, `li` | something to be noticed, with its icon |
//! | `tabs` | `ul` of links | pages that belong together |
//! | `form`, `form inline` | `form` | fields below each other, or on one line |
//! | `button`, `primary`, `danger` | `a`, `button` | what to press |
//! | `quiet` | anything | of less weight |

mod empty;
mod facts;
mod field;
mod markup;
mod pager;
mod tone;
mod unit;
mod when;

pub use empty::Empty;
pub use facts::Facts;
pub use field::{Choice, Field};
pub use markup::{Escaped, Markup};
pub use pager::Pager;
pub use tone::{Badge, Icon, Tone};
pub use unit::{Amount, Quantity, Unit};
pub use when::{When, now_ms};

pub(crate) use unit::MOST;
pub(crate) use when::timestamp;
