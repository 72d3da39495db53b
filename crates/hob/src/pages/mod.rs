//! The console's own pages: what is going on, whether it is well, which keys there are.

mod health;
mod keys;
mod overview;
mod survey;
#[cfg(test)]
mod tests;

use std::time::Duration;

use anyhow::{Context, Result};
use hob_house::Task;
use hob_house::keys::Keys;
use hob_schema::Catalog;
use hob_web::{Access, Changes, Routes, Web};

pub(crate) use health::Footprints;
pub(crate) use overview::Overview;
use survey::Survey;

use crate::http::Place;
use crate::schema;

/// Health and Keys are for whoever has this scope; it is also the topic of their live updates.
const SCOPE: &str = "console";

/// What these pages show changes all the time; so often it is shown anew.
const EVERY: Duration = Duration::from_secs(3);

/// The pages of the console itself around those of the systems, in the order of the navigation.
pub(crate) fn around(
    systems: Routes,
    web: &Web,
    keys: &Keys,
    place: &Place,
    overview: Overview,
    footprints: Footprints,
) -> Result<Routes> {
    let house = web.house();
    let mut schemas = schema::own()?;
    for schema in &mut schemas {
        schema.apply_env(&|name| std::env::var(name).ok()).context("the schemas")?;
    }
    let survey = Survey::new(&house.hot, Catalog::new(schemas, house.layout).context("the schemas")?);
    survey.start(&house.tasks);
    let changes = web.changes().clone();
    house.tasks.spawn("pulse of the console", move |task| pulse(changes.clone(), task));
    let home =
        Routes::new().nav("Overview", "/").page(Access::Known, "/", overview::page).with_state(overview);
    let key_pages = Routes::new()
        .nav("Keys", "/keys")
        .page(Access::read(SCOPE), "/keys", keys::page)
        .page(Access::read(SCOPE), "/keys/{schema}/{family}", keys::family_page)
        .action(Access::write(SCOPE), "/keys/audit", keys::audit_now)
        .with_state(survey);
    let health = health::Desk { house: house.clone(), keys: keys.clone(), place: place.clone(), footprints };
    let health = Routes::new()
        .nav("Health", "/health")
        .page(Access::read(SCOPE), "/health", health::page)
        .with_state(health);
    Ok(home.merge(systems).merge(key_pages).merge(health))
}

async fn pulse(changes: Changes, task: Task) {
    while task.pause(EVERY).await {
        changes.tell(SCOPE);
        task.beat();
    }
}
