//! The console's own pages: what is going on, whether it is well, which keys there are.

mod health;
mod keys;
mod overview;
mod survey;
#[cfg(test)]
mod tests;

use hob_house::House;
use hob_schema::{Catalog, Clash, Schema};
use hob_web::{Access, Routes};

pub(crate) use overview::Overview;
use survey::Survey;

/// Health and Keys are for whoever has this scope.
const SCOPE: &str = "console";

/// The pages of the console itself; `schemas` are those of everything that writes into hot state.
pub(crate) fn routes(house: &House, overview: Overview, schemas: Vec<Schema>) -> Result<Routes, Clash> {
    let survey = Survey::new(house.hot.clone(), Catalog::new(schemas, house.layout)?);
    survey.start(&house.tasks);
    let home =
        Routes::new().nav("Overview", "/").page(Access::Known, "/", overview::page).with_state(overview);
    let keys = Routes::new()
        .nav("Keys", "/keys")
        .page(Access::read(SCOPE), "/keys", keys::page)
        .page(Access::read(SCOPE), "/keys/{schema}/{family}", keys::family_page)
        .action(Access::write(SCOPE), "/keys/audit", keys::audit_now)
        .with_state(survey);
    let health = Routes::new()
        .nav("Health", "/health")
        .page(Access::read(SCOPE), "/health", health::page)
        .with_state(house.clone());
    Ok(home.merge(keys).merge(health))
}
