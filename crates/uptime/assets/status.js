// Shows times in the time zone of the reader: the server renders them, and learns the zone from a cookie. Without scripts,
// the reader chooses the zone with the form at the end of the page.

const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
const isKnown = () => document.cookie.split("; ").some((pair) => pair.startsWith("hob_zone="));

if (zone && zone !== document.documentElement.dataset.zone && !isKnown()) {
  document.cookie = `hob_zone=${zone}; path=/status; max-age=31536000; samesite=lax`;
  // Without cookies the zone stays as it is.
  if (isKnown()) location.reload();
}
