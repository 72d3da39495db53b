//! The console's pages.
use crate::uptime::Uptime;
use hob_web::Routes;
pub(crate) fn routes() -> Routes<Uptime> {
    Routes::new()
}
