//! The parts of console pages: numbers with units, times, states, fields and other components.
//!
//! Everything here renders as HTML with its text escaped; templates write `{{ value }}` without a filter. The stylesheet
//! covers plain HTML, so a page needs few classes:
//!
//! | class | on | is |
//! |---|---|---|
//! | `panel` | `section` | a bordered part of a page with an `h2` |
//! | `page-head` | `div` | below the heading: a state, links, buttons |
//! | `stack` | `div` | parts in a column |
//! | `grid` | `div` | parts in columns, as many as fit |
//! | `row` | `div` | items on one line, wrapped if needed |
//! | `table` | `div` around a `table` | a table that scrolls horizontally |
//! | `wrap` | `td` | long text with line breaks |
//! | `num` | `td`, `th` | a number, aligned right |
//! | `vitals` | `dl` | a few large numbers with their names |
//! | `facts` | `dl` | names and values ([`Facts`]) |
//! | `notice` and a tone's class | `p`, `li` | a notice with an icon |
//! | `tabs` | `ul` of links | related pages |
//! | `form`, `form inline` | `form` | fields in a column, or on one line |
//! | `button`, `primary`, `danger` | `a`, `button` | a button |
//! | `quiet` | anything | less prominent text |

mod copy_button;
mod empty;
mod facts;
mod field;
mod link;
mod markup;
mod pager;
mod relative_time;
mod tone;
mod unit;

pub use copy_button::CopyButton;
pub use empty::Empty;
pub use facts::Facts;
pub use field::{Choice, Field};
pub use link::link;
pub use markup::{Escaped, Markup};
pub use pager::Pager;
pub use relative_time::RelativeTime;
pub use tone::{Badge, Icon, Tone};
pub use unit::{Amount, Quantity, Unit};

pub(crate) use relative_time::timestamp;
pub(crate) use unit::MAX_VALUE;
