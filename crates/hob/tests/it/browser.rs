//! Pages of the whole program in a real browser.

mod accessible;
mod console;
mod pictures;
