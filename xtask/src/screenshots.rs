//! `cargo xtask screenshots`: writes the pictures in `docs/images`, of the demo in a real browser.

use anyhow::Result;

use crate::{cargo, setup, step};

pub(crate) fn run() -> Result<()> {
    let clients = setup::run(setup::Extent::Whole)?;
    setup::pictures()?;
    let mut test = cargo();
    test.args(["test", "--workspace", "--test", "it", "pictures::", "--", "--ignored"]);
    clients.export(&mut test);
    step::run("screenshots", &mut test)
}
