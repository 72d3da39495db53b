//! The accent colour of a status page, with enough contrast in light and in dark mode.

use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use hob_web::Problem;

use super::public::current;
use super::reader::Reader;
use crate::status::page::rgb;
use crate::uptime::Uptime;

/// WCAG AA for text.
const MIN_CONTRAST: f64 = 4.6;
/// The surfaces of hob.css on which links and buttons are shown.
const LIGHT: [u8; 3] = [0xf0, 0xf2, 0xf4];
const DARK: [u8; 3] = [0x1e, 0x25, 0x2c];
const WHITE: [u8; 3] = [255; 3];
const BLACK: [u8; 3] = [0; 3];

pub(super) async fn stylesheet(State(uptime): State<Uptime>, reader: Reader) -> Result<Response, Problem> {
    let status = current(&uptime, &reader.slug).await?;
    let css = rgb(&status.page.spec.accent).map(css).unwrap_or_default();
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/css; charset=utf-8")),
        // Its URL contains the colour.
        (header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=86400")),
        (
            header::HeaderName::from_static("cross-origin-resource-policy"),
            HeaderValue::from_static("cross-origin"),
        ),
    ];
    Ok((headers, css).into_response())
}

fn css(accent: [u8; 3]) -> String {
    let (light, dark) = (readable(accent, LIGHT, BLACK), readable(accent, DARK, WHITE));
    let ink = |on: [u8; 3]| if contrast(WHITE, on) >= contrast(BLACK, on) { "#ffffff" } else { "#000000" };
    format!(
        ":root {{ --accent: light-dark({0}, {1}); --accent-ink: light-dark({2}, {3}); \
         --accent-wash: light-dark(color-mix(in srgb, {0} 10%, #ffffff), color-mix(in srgb, {1} 16%, #161b21)) }}\n",
        hex(light),
        hex(dark),
        ink(light),
        ink(dark)
    )
}

/// The colour, mixed with another one until it can be read on this surface.
fn readable(color: [u8; 3], surface: [u8; 3], with: [u8; 3]) -> [u8; 3] {
    let mixed = |step: u16| {
        let part = |at: usize| {
            let (own, other) = (u16::from(color[at]), u16::from(with[at]));
            ((own * (20 - step) + other * step) / 20) as u8
        };
        [part(0), part(1), part(2)]
    };
    (0..=20).map(mixed).find(|color| contrast(*color, surface) >= MIN_CONTRAST).unwrap_or(with)
}

/// The contrast ratio of WCAG 2.
fn contrast(a: [u8; 3], b: [u8; 3]) -> f64 {
    let (a, b) = (luminance(a), luminance(b));
    (a.max(b) + 0.05) / (a.min(b) + 0.05)
}

fn luminance(color: [u8; 3]) -> f64 {
    let linear = |part: u8| {
        let part = f64::from(part) / 255.0;
        if part <= 0.04045 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
    };
    0.2126 * linear(color[0]) + 0.7152 * linear(color[1]) + 0.0722 * linear(color[2])
}

fn hex([red, green, blue]: [u8; 3]) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_accent_can_be_read() {
        for accent in [[0; 3], [255; 3], [255, 255, 0], [10, 92, 194], [128, 128, 128], [255, 0, 0]] {
            for (surface, with) in [(LIGHT, BLACK), (DARK, WHITE)] {
                let color = readable(accent, surface, with);
                assert!(contrast(color, surface) >= MIN_CONTRAST, "{accent:?} on {surface:?}: {color:?}");
            }
        }
        assert_eq!(readable([10, 92, 194], LIGHT, BLACK), [10, 92, 194], "a good colour stays as it is");
    }
}
