//! The pages of the chat in the console.

use hob_web::Routes;

use crate::Chat;

pub(crate) fn routes() -> Routes<Chat> {
    Routes::new()
}
