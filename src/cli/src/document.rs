//! YAML and JSON texts as values, with the lines that their parts stand in.

use saphyr_parser::{Event, Parser, ScalarStyle, Span};
use serde_json::{Map, Number, Value};
use std::borrow::Cow;
use std::collections::HashMap;

/// The most values of a file, aliases written out.
const MAX_VALUES: usize = 1_000_000;
/// The most values inside one another.
const MAX_DEPTH: usize = 100;

/// A document of a file.
#[derive(Debug, Default)]
pub(crate) struct Document {
    pub(crate) value: Value,
    /// By path, written as faults write theirs: `rules[0].limits`.
    marks: HashMap<String, Mark>,
    is_json: bool,
}

/// Where a value stands.
#[derive(Clone, Copy, Debug)]
struct Mark {
    /// The line of its name, from 1.
    line: usize,
    /// The line that its text begins in.
    text: usize,
    /// Whether a line of the file is a line of the text.
    by_line: bool,
}

/// Why a text is no YAML, and where.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unreadable {
    pub(crate) line: usize,
    pub(crate) message: String,
}

impl Document {
    /// The documents of a YAML text; JSON is YAML too. Words are read as Envoy and Kubernetes read them: `on`, `off`, `yes` and
    /// `no` are booleans.
    ///
    /// # Errors
    /// It isn't YAML, a field is given twice, or there is too much of it.
    pub(crate) fn all(text: &str) -> Result<Vec<Document>, Unreadable> {
        let mut reader = Reader::default();
        for event in Parser::new_from_str(text) {
            let (event, span) = event.map_err(|error| refused(error.marker().line(), error.info()))?;
            reader.read(event, span)?;
        }
        Ok(reader.documents)
    }

    /// A document of JSON text, with its lines as far as it is YAML too.
    pub(crate) fn json(value: Value, text: &str) -> Document {
        let marks = Document::all(text).ok().and_then(|mut documents| documents.pop()).unwrap_or_default().marks;
        Document { value, marks, is_json: true }
    }

    /// A value in a `Struct`, as Envoy hands it to the filter: of YAML it makes fractions text.
    pub(crate) fn as_envoy_has_it<'v>(&self, value: &'v Value) -> Cow<'v, Value> {
        if self.is_json { Cow::Borrowed(value) } else { Cow::Owned(with_textual_fractions(value)) }
    }

    /// The line of the value at a path, or of the nearest that there is around it.
    pub(crate) fn line(&self, path: &str) -> Option<usize> {
        self.nearest(path).map(|mark| mark.line)
    }

    /// The line of the file that the line of a text is in, from 1.
    pub(crate) fn line_in_text(&self, path: &str, line: usize) -> Option<usize> {
        let mark = self.nearest(path)?;
        Some(if mark.by_line { mark.text.saturating_add(line).saturating_sub(1) } else { mark.text })
    }

    fn nearest(&self, path: &str) -> Option<Mark> {
        let mut path = path;
        loop {
            match self.marks.get(path) {
                Some(mark) => return Some(*mark),
                None if path.is_empty() => return None,
                None => path = path.rfind(['.', '[']).and_then(|end| path.get(..end)).unwrap_or_default(),
            }
        }
    }
}

/// A field's path.
pub(crate) fn join(path: &str, field: &str) -> String {
    match (path.is_empty(), field.starts_with('[')) {
        (true, _) => field.to_owned(),
        (false, true) => format!("{path}{field}"),
        (false, false) => format!("{path}.{field}"),
    }
}

fn with_textual_fractions(value: &Value) -> Value {
    match value {
        Value::Number(number) if number.is_f64() => Value::String(number.to_string()),
        Value::Array(items) => items.iter().map(with_textual_fractions).collect(),
        Value::Object(fields) => {
            Value::Object(fields.iter().map(|(name, value)| (name.clone(), with_textual_fractions(value))).collect())
        }
        _ => value.clone(),
    }
}

/// Makes values of events.
#[derive(Debug, Default)]
struct Reader {
    documents: Vec<Document>,
    document: Document,
    open: Vec<Open>,
    /// Values that aliases name, and how many values each is.
    anchors: HashMap<usize, (Value, usize)>,
    values: usize,
}

/// A list or mapping that isn't at its end yet.
#[derive(Debug)]
struct Open {
    path: String,
    anchor: usize,
    /// How many values there were before it.
    before: usize,
    inside: Inside,
}

#[derive(Debug)]
enum Inside {
    List(Vec<Value>),
    Map(Map<String, Value>, Option<String>),
}

impl Reader {
    fn read(&mut self, event: Event<'_>, span: Span) -> Result<(), Unreadable> {
        let line = span.start.line();
        match event {
            Event::Scalar(text, style, anchor, _) => {
                if self.takes_name() {
                    return self.name(text.into_owned(), line);
                }
                // A literal's place is that of its first line with something in it.
                let blank = text.chars().take_while(|c| *c == '\n').count();
                let by_line = style == ScalarStyle::Literal;
                let text_line = if by_line { line.saturating_sub(blank) } else { line };
                let mark = self.mark(line);
                (mark.text, mark.by_line) = (text_line, by_line);
                let value = if style == ScalarStyle::Plain { plain(&text) } else { Value::String(text.into_owned()) };
                let before = self.values;
                self.values = self.values.saturating_add(1);
                self.close(value, anchor, before, line)
            }
            Event::Alias(anchor) => {
                let (value, size) = self.anchors.get(&anchor).cloned().unwrap_or_default();
                let before = self.values;
                self.values = self.values.saturating_add(size);
                if self.takes_name() {
                    return Err(refused(line, "a field's name is wanted, and this is an alias"));
                }
                self.mark(line);
                self.within_bounds(line)?;
                self.close(value, 0, before, line)
            }
            Event::SequenceStart(anchor, _) => self.begin(Inside::List(Vec::new()), anchor, line),
            Event::MappingStart(anchor, _) => self.begin(Inside::Map(Map::new(), None), anchor, line),
            Event::SequenceEnd | Event::MappingEnd => match self.open.pop() {
                Some(Open { anchor, before, inside, .. }) => {
                    let value = match inside {
                        Inside::List(items) => Value::Array(items),
                        Inside::Map(map, _) => Value::Object(map),
                    };
                    self.close(value, anchor, before, line)
                }
                None => Ok(()),
            },
            Event::DocumentEnd => {
                self.anchors.clear();
                self.documents.push(std::mem::take(&mut self.document));
                Ok(())
            }
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentStart(_) => Ok(()),
        }
    }

    /// Whether what comes next is a field's name.
    fn takes_name(&self) -> bool {
        matches!(self.open.last(), Some(Open { inside: Inside::Map(_, None), .. }))
    }

    fn name(&mut self, text: String, line: usize) -> Result<(), Unreadable> {
        if let Some(Open { inside: Inside::Map(map, name), .. }) = self.open.last_mut() {
            if map.contains_key(&text) {
                return Err(refused(line, &format!("the field {text:?} is given twice")));
            }
            *name = Some(text);
        }
        self.mark(line);
        Ok(())
    }

    /// The path of the value that comes next.
    fn path(&self) -> String {
        match self.open.last() {
            None => String::new(),
            Some(Open { path, inside: Inside::List(items), .. }) => join(path, &format!("[{}]", items.len())),
            Some(Open { path, inside: Inside::Map(_, name), .. }) => join(path, name.as_deref().unwrap_or_default()),
        }
    }

    /// Notes the line of what comes next, where its name hasn't been noted.
    fn mark(&mut self, line: usize) -> &mut Mark {
        let path = self.path();
        self.document.marks.entry(path).or_insert(Mark { line, text: line, by_line: false })
    }

    fn begin(&mut self, inside: Inside, anchor: usize, line: usize) -> Result<(), Unreadable> {
        if self.takes_name() {
            return Err(refused(line, "a field's name is wanted, and this is a list or a mapping"));
        }
        if self.open.len() >= MAX_DEPTH {
            return Err(refused(line, &format!("more than {MAX_DEPTH} values inside one another")));
        }
        self.mark(line);
        let path = self.path();
        let before = self.values;
        self.values = self.values.saturating_add(1);
        self.open.push(Open { path, anchor, before, inside });
        self.within_bounds(line)
    }

    /// Puts a value that is complete where it belongs.
    fn close(&mut self, value: Value, anchor: usize, before: usize, line: usize) -> Result<(), Unreadable> {
        self.within_bounds(line)?;
        if anchor > 0 {
            self.anchors.insert(anchor, (value.clone(), self.values.saturating_sub(before)));
        }
        match self.open.last_mut().map(|open| &mut open.inside) {
            None => self.document.value = value,
            Some(Inside::List(items)) => items.push(value),
            Some(Inside::Map(map, name)) => {
                map.insert(name.take().unwrap_or_default(), value);
            }
        }
        Ok(())
    }

    fn within_bounds(&self, line: usize) -> Result<(), Unreadable> {
        if self.values <= MAX_VALUES {
            return Ok(());
        }
        Err(refused(line, &format!("more than {MAX_VALUES} values")))
    }
}

fn refused(line: usize, message: &str) -> Unreadable {
    Unreadable { line, message: message.to_owned() }
}

/// A word without quotes.
fn plain(text: &str) -> Value {
    const TRUE: [&str; 4] = ["y", "yes", "on", "true"];
    const FALSE: [&str; 4] = ["n", "no", "off", "false"];
    let lower = text.to_ascii_lowercase();
    // `on`, `On` and `ON`, but not `oN`.
    let tail = text.get(1..).unwrap_or_default();
    let usual_case = text == lower || tail == tail.to_ascii_lowercase() || text == text.to_ascii_uppercase();
    if lower.is_empty() || lower == "~" || (lower == "null" && usual_case) {
        return Value::Null;
    }
    if usual_case && TRUE.contains(&lower.as_str()) {
        return Value::Bool(true);
    }
    if usual_case && FALSE.contains(&lower.as_str()) {
        return Value::Bool(false);
    }
    let number = text.starts_with(|c: char| c.is_ascii_digit() || c == '-' || c == '.').then(|| number(text)).flatten();
    number.map_or_else(|| Value::String(text.to_owned()), Value::Number)
}

fn number(text: &str) -> Option<Number> {
    let integer = text.parse::<u64>().ok().map(Number::from).or_else(|| text.parse::<i64>().ok().map(Number::from));
    integer.or_else(|| Number::from_f64(text.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn one(text: &str) -> Document {
        let mut documents = Document::all(text).unwrap();
        assert_eq!(documents.len(), 1, "{text}");
        documents.remove(0)
    }

    fn refusal(text: &str) -> String {
        let Unreadable { line, message } = Document::all(text).unwrap_err();
        format!("{line}: {message}")
    }

    #[test]
    fn words_are_what_envoy_and_kubernetes_take_them_for() {
        let table = [
            ("on", json!(true)),
            ("Off", json!(false)),
            ("YES", json!(true)),
            ("n", json!(false)),
            ("oN", json!("oN")),
            ("'on'", json!("on")),
            ("~", Value::Null),
            ("", Value::Null),
            ("Null", Value::Null),
            ("12", json!(12)),
            ("-3", json!(-3)),
            ("0.5", json!(0.5)),
            ("18446744073709551616", json!(18_446_744_073_709_551_616.0)),
            ("10/s", json!("10/s")),
            ("1e400", json!("1e400")),
            ("nan", json!("nan")),
            (".inf", json!(".inf")),
            ("\"\\u0041\"", json!("A")),
        ];
        for (text, wanted) in table {
            assert_eq!(one(&format!("a: {text}\n")).value, json!({ "a": wanted }), "{text}");
        }
    }

    #[test]
    fn each_value_knows_its_line() {
        let document = one("a:\n- b: 1\n  c: &x [1,\n    2]\n- *x\nd: |\n\n  {\n  \"e\"}\nf: >\n  g\n  h\n");
        assert_eq!(document.value, json!({"a": [{"b": 1, "c": [1, 2]}, [1, 2]], "d": "\n{\n\"e\"}\n", "f": "g h\n"}));
        let lines =
            [("a", 1), ("a[0]", 2), ("a[0].c", 3), ("a[0].c[1]", 4), ("a[1]", 5), ("a[1][0]", 5), ("d", 6), ("f", 10)];
        for (path, line) in lines {
            assert_eq!(document.line(path), Some(line), "{path}");
        }
        assert_eq!(document.line("a[0].c.nowhere[3].x"), Some(3));
        assert_eq!(document.line("nowhere"), Some(1));
        assert_eq!(document.line_in_text("d", 3), Some(9), "the line of a literal's third line");
        assert_eq!(document.line_in_text("f", 1), Some(11));
    }

    #[test]
    fn what_can_not_be_read_is_refused_with_its_line() {
        assert_eq!(refusal("a: 1\nb: 2\na: 3\n"), "3: the field \"a\" is given twice");
        assert_eq!(refusal("? [1]\n: 2\n"), "1: a field's name is wanted, and this is a list or a mapping");
        assert_eq!(refusal("a: &x 1\n*x : 2\n"), "2: a field's name is wanted, and this is an alias");
        assert_eq!(refusal("\na: *x\n"), "2: while parsing node, found unknown anchor");
        assert_eq!(refusal(&"[".repeat(101)), "1: more than 100 values inside one another");
    }

    #[test]
    fn aliases_of_aliases_are_refused_before_they_are_written_out() {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..20 {
            let alias = format!("*a{}", level - 1);
            text.push_str(&format!("a{level}: &a{level} [{}]\n", vec![alias; 10].join(", ")));
        }
        assert_eq!(refusal(&text), "6: more than 1000000 values");
    }
}
