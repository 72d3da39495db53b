//! The console pages of the program: Overview, Keys, Health and the search.

mod audit;
mod audit_api;
mod health;
mod keys;
mod overview;
mod search;
#[cfg(test)]
mod tests;

use std::time::Duration;

use anyhow::{Context, Result};
use hob_schema::Catalog;
use hob_service::Task;
use hob_service::keys::Keys;
use hob_web::{Access, Audited, Changes, Routes, Web};

use audit::BackgroundAudit;
pub(crate) use audit_api::{AuditProgress, AuditRequest, AuditView, SchemasView};
use overview::Overview;

use crate::schema;
use crate::serve::http::Endpoints;
use crate::services::Services;

/// The scope of Health and Keys, and the topic of their live updates.
const SCOPE: &str = "console";

const HEART_ICON: &str = "M10 16.5S3 12.3 3 7.6C3 5 5 3.7 6.7 3.7c1.5 0 2.7 1 3.3 2.2.6-1.2 1.8-2.2 3.3-2.2C15 3.7 17 5 17 \
                     7.6c0 4.7-7 8.9-7 8.9z";

/// How often open pages are refreshed.
const REFRESH_INTERVAL: Duration = Duration::from_secs(3);

/// The pages of the program and of the services, in the order of the navigation.
pub(crate) fn routes(services: &Services, web: &Web, keys: &Keys, endpoints: &Endpoints) -> Result<Routes> {
    let context = web.context();
    let mut schemas = schema::own()?;
    for schema in &mut schemas {
        schema.apply_env(&|name| std::env::var(name).ok()).context("the schemas")?;
    }
    let audit =
        BackgroundAudit::new(&context.store, Catalog::new(schemas, context.layout).context("the schemas")?);
    audit.start(&context.tasks);
    let changes = web.changes().clone();
    context.tasks.spawn("console refresh", move |task| refresh_pages(changes.clone(), task));
    let home = Routes::new()
        .nav("Overview", "/", "M3 9.5 10 3l7 6.5M5 8v8.5h10V8")
        .page(Access::Authenticated, "/", overview::page)
        .with_state(Overview::new(context, services));
    let key_pages = Routes::new()
        .nav("Keys", "/keys", "M12.5 3.5a4 4 0 1 0 .1 8 4 4 0 0 0-.1-8zM9.6 10.4 3.5 16.5M5.5 14.5l2 2")
        .page(Access::read(SCOPE), "/keys", keys::page)
        .page(Access::read(SCOPE), "/keys/{schema}/{family}", keys::family_page)
        .action(Access::write(SCOPE), Audited::As("keys.audit.start"), "/keys/audit", keys::audit_now)
        .merge(audit_api::routes())
        .with_state(audit.clone());
    let search = Routes::new()
        .page(Access::Authenticated, "/search", search::page)
        .with_state(search::SearchState { services: services.clone(), audit });
    let health = health::HealthState {
        context: context.clone(),
        keys: keys.clone(),
        endpoints: endpoints.clone(),
        services: services.clone(),
    };
    let health = Routes::new()
        .nav("Health", "/health", HEART_ICON)
        .page(Access::read(SCOPE), "/health", health::page)
        .with_state(health);
    Ok(home.merge(services.routes()).merge(key_pages).merge(health).merge(search))
}

async fn refresh_pages(changes: Changes, task: Task) {
    while task.pause(REFRESH_INTERVAL).await {
        changes.notify(SCOPE);
        task.heartbeat();
    }
}
