//! Pages of the whole program in a real browser.

mod console;
mod pictures;
