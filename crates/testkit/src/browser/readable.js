// Returns the problems of the page: text whose contrast with its background is below WCAG AA, labels that are too small, panels
// that touch each other, and elements that overflow the window at the right.
const canvas = document.createElement("canvas");
canvas.width = canvas.height = 1;
const pen = canvas.getContext("2d", { willReadFrequently: true });

function rgba(colour) {
  pen.clearRect(0, 0, 1, 1);
  pen.fillStyle = colour;
  pen.fillRect(0, 0, 1, 1);
  const [red, green, blue, alpha] = pen.getImageData(0, 0, 1, 1).data;
  return [red, green, blue, alpha / 255];
}

function over(top, bottom) {
  const mixed = [0, 1, 2].map((index) => top[index] * top[3] + bottom[index] * (1 - top[3]));
  return [...mixed, 1];
}

function backgroundOf(element) {
  const layers = [];
  for (let at = element; at; at = at.parentElement) {
    layers.push(rgba(getComputedStyle(at).backgroundColor));
    if (layers.at(-1)[3] === 1) break;
  }
  return layers.reverse().reduce((bottom, top) => over(top, bottom), [255, 255, 255, 1]);
}

function luminance([red, green, blue]) {
  const linear = [red, green, blue].map((value) => {
    const part = value / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
}

function contrast(one, other) {
  const [light, dark] = [luminance(one), luminance(other)].sort((a, b) => b - a);
  return (light + 0.05) / (dark + 0.05);
}

const problems = [];
const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (texts.nextNode()) {
  const text = texts.currentNode.nodeValue.trim();
  const element = texts.currentNode.parentElement;
  if (!text || element.closest("title, script, style, option") || !element.checkVisibility()) continue;
  const box = element.getBoundingClientRect();
  if (box.width <= 1 || box.bottom < 0) continue;
  const style = getComputedStyle(element);
  const background = backgroundOf(element);
  const ink = over(rgba(element instanceof SVGElement ? style.fill : style.color), background);
  const size = parseFloat(style.fontSize);
  const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
  const ratio = contrast(ink, background);
  if (element.closest("label") && size < 13) problems.push(`the label “${text.slice(0, 40)}” has ${size} px`);
  if (ratio < (large ? 3 : 4.5)) problems.push(`“${text.slice(0, 40)}” has a contrast of ${ratio.toFixed(2)}`);
}
const panels = [...document.querySelectorAll(".panel, .card")].filter((panel) => panel.checkVisibility());
const boxes = panels.map((panel) => panel.getBoundingClientRect());
for (const [at, box] of boxes.entries()) {
  const near = (other) => other.left < box.right && other.right > box.left && other.top >= box.bottom && other.top < box.bottom + 8;
  const below = boxes.findIndex(near);
  if (below >= 0) problems.push(`#${panels[at].id} and #${panels[below].id} touch each other`);
}
const [width, available] = [document.documentElement.scrollWidth, document.documentElement.clientWidth];
if (width > available) {
  const scrolls = (element) => element && (getComputedStyle(element).overflowX !== "visible" || scrolls(element.parentElement));
  const overflows = (element) => element.getBoundingClientRect().right > available + 1 && !scrolls(element.parentElement);
  const overflowing = [...document.body.querySelectorAll("*")].filter(overflows);
  const names = overflowing.slice(0, 3).map((element) => `${element.localName}.${element.className.baseVal ?? element.className}`);
  problems.push(`the page is ${width} px wide, the window ${available} px: ${names.join(", ")}`);
}
return problems;
