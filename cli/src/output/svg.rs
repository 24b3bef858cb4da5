//! Hand-written SVG shared by all charts, in the viewer's light or dark colour scheme.

use std::fmt::Write as _;

/// Without variables, which not every program that shows SVG knows; one without media queries shows the light colours.
const LIGHT: &str = "\
text { fill: #1f2328; font: 13px system-ui, sans-serif; }
.heading { font-size: 15px; font-weight: 600; }
.paper { fill: #ffffff; }
.axis { fill: none; stroke: #1f2328; }
.grid { stroke: #d5d9de; }
.curve { fill: none; stroke-width: 2.5; stroke-linecap: round; stroke-linejoin: round; }
";

const DARK: &str = "  text { fill: #e4e7eb; }
  .paper { fill: #15191e; }
  .axis { stroke: #e4e7eb; }
  .grid { stroke: #39414a; }
";

/// Style of the curves of one class.
#[derive(Clone, Copy)]
pub(crate) struct Curve {
    pub(crate) class: &'static str,
    pub(crate) light: &'static str,
    pub(crate) dark: &'static str,
    pub(crate) is_dashed: bool,
}

/// An SVG document under construction.
pub(crate) struct Svg(String);

impl Svg {
    /// An empty document of this size, in pixels.
    pub(crate) fn new(width: f64, height: f64, title: &str, curves: &[Curve]) -> Self {
        let mut style = LIGHT.to_owned();
        for Curve { class, light, is_dashed, .. } in curves {
            let dashes = if *is_dashed { " stroke-dasharray: 7 6;" } else { "" };
            let _ = writeln!(style, ".{class} {{ stroke: {light};{dashes} }}");
        }
        style.push_str("@media (prefers-color-scheme: dark) {\n");
        style.push_str(DARK);
        for Curve { class, dark, .. } in curves {
            let _ = writeln!(style, "  .{class} {{ stroke: {dark}; }}");
        }
        style.push_str("}\n");
        Self(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
             role=\"img\">\n<title>{title}</title>\n<style>\n{style}</style>\n\
             <rect class=\"paper\" width=\"{width}\" height=\"{height}\"/>\n"
        ))
    }

    /// Adds a title and a subtitle.
    pub(crate) fn heading(&mut self, heading: &str, subject: &str) {
        self.element(16.0, 26.0, " class=\"heading\"", heading);
        self.text((16.0, 46.0), subject);
    }

    pub(crate) fn text(&mut self, (x, y): (f64, f64), words: &str) {
        self.element(x, y, "", words);
    }

    /// Text around `x`.
    pub(crate) fn centred(&mut self, (x, y): (f64, f64), words: &str) {
        self.element(x, y, " text-anchor=\"middle\"", words);
    }

    /// Text that ends at `x`.
    pub(crate) fn ending(&mut self, (x, y): (f64, f64), words: &str) {
        self.element(x, y, " text-anchor=\"end\"", words);
    }

    fn element(&mut self, x: f64, y: f64, more: &str, words: &str) {
        let _ = writeln!(self.0, "<text x=\"{x:.1}\" y=\"{y:.1}\"{more}>{words}</text>");
    }

    /// A path of that class; `data` as SVG wants it.
    pub(crate) fn path(&mut self, class: &str, data: &str) {
        let _ = writeln!(self.0, "<path class=\"{class}\" d=\"{data}\"/>");
    }

    /// Draws a line through the points; a single point becomes a visible dot.
    pub(crate) fn curve(&mut self, class: &str, points: impl Iterator<Item = (f64, f64)>) {
        let mut data = String::new();
        for (index, (x, y)) in points.enumerate() {
            if index == 0 {
                let _ = write!(data, "M{x:.1} {y:.1}");
            }
            let _ = write!(data, "L{x:.1} {y:.1}");
        }
        self.path(class, &data);
    }

    pub(crate) fn finish(mut self) -> String {
        self.0.push_str("</svg>\n");
        self.0
    }
}
