//! The JSON reader behind settings: text to tokens, with the key at which it stands. It holds the text, a position and the
//! keys around it.

use super::Refusal;

/// How deep objects and arrays may nest.
const MAX_DEPTH: usize = 64;

/// One container around the place that is being read.
pub(super) enum Step {
    Member(String),
    Element(usize),
}

/// Reads a JSON text from front to back.
pub(super) struct Reader<'de> {
    text: &'de str,
    at: usize,
    /// The containers around; left as they are when something is refused.
    pub(super) steps: Vec<Step>,
    depth: usize,
}

impl<'de> Reader<'de> {
    pub(super) fn new(text: &'de str) -> Self {
        Self { text, at: 0, steps: Vec::new(), depth: 0 }
    }

    /// The dotted key of the value being read: `addresses[2]`.
    pub(super) fn key(&self) -> String {
        self.steps.iter().fold(String::new(), |key, step| match step {
            Step::Member(name) if key.is_empty() => key + name,
            Step::Member(name) => key + "." + name,
            Step::Element(index) => key + "[" + &index.to_string() + "]",
        })
    }

    /// The next byte that is no white space, not consumed.
    pub(super) fn peek(&mut self) -> Option<u8> {
        while let Some(byte) = self.text.as_bytes().get(self.at) {
            if !matches!(byte, b' ' | b'\t' | b'\n' | b'\r') {
                return Some(*byte);
            }
            self.at += 1;
        }
        None
    }

    /// Nothing but white space may be left.
    pub(super) fn end(&mut self) -> Result<(), Refusal> {
        if self.peek().is_some() { Err(self.malformed()) } else { Ok(()) }
    }

    fn malformed(&self) -> Refusal {
        Refusal(format!("not JSON at byte {}", self.at))
    }

    /// Consumes the next byte if it is this one.
    pub(super) fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    pub(super) fn expect(&mut self, byte: u8) -> Result<(), Refusal> {
        if self.eat(byte) { Ok(()) } else { Err(self.malformed()) }
    }

    pub(super) fn literal(&mut self, literal: &str) -> Result<(), Refusal> {
        if !self.text.get(self.at..).is_some_and(|rest| rest.starts_with(literal)) {
            return Err(self.malformed());
        }
        self.at += literal.len();
        Ok(())
    }

    /// The bytes of a number, and whether it is an integer.
    fn number(&mut self) -> Result<(&'de str, bool), Refusal> {
        let start = self.at;
        self.at += usize::from(self.byte() == Some(b'-'));
        let zero = self.byte() == Some(b'0');
        if self.digits() > 1 && zero {
            self.at = start + 1;
            return Err(self.malformed());
        }
        let mut integer = true;
        let mut broken = self.text.as_bytes().get(self.at.saturating_sub(1)).is_none_or(|last| !last.is_ascii_digit());
        if self.byte() == Some(b'.') {
            self.at += 1;
            integer = false;
            broken |= self.digits() == 0;
        }
        if matches!(self.byte(), Some(b'e' | b'E')) {
            self.at += 1;
            integer = false;
            self.at += usize::from(matches!(self.byte(), Some(b'+' | b'-')));
            broken |= self.digits() == 0;
        }
        match self.text.get(start..self.at) {
            Some(number) if !broken => Ok((number, integer)),
            _ => Err(self.malformed()),
        }
    }

    fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn digits(&mut self) -> usize {
        let start = self.at;
        while self.byte().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        self.at - start
    }

    /// A string: borrowed as it stands, or owned where escapes were resolved.
    pub(super) fn string(&mut self) -> Result<Result<&'de str, String>, Refusal> {
        self.expect(b'"')?;
        let mut start = self.at;
        let mut resolved: Option<String> = None;
        loop {
            match self.byte() {
                Some(b'"') => {
                    let rest = self.text.get(start..self.at).unwrap_or_default();
                    self.at += 1;
                    return Ok(match resolved {
                        Some(text) => Err(text + rest),
                        None => Ok(rest),
                    });
                }
                Some(b'\\') => {
                    let text = resolved.get_or_insert_default();
                    text.push_str(self.text.get(start..self.at).unwrap_or_default());
                    self.at += 1;
                    let escaped = self.escape()?;
                    text.push(escaped);
                    start = self.at;
                }
                Some(0x20..) => self.at += 1,
                _ => return Err(self.malformed()),
            }
        }
    }

    /// The name of a member.
    pub(super) fn name(&mut self) -> Result<String, Refusal> {
        self.peek();
        Ok(match self.string()? {
            Ok(name) => name.to_owned(),
            Err(name) => name,
        })
    }

    /// The character of an escape, after its backslash.
    fn escape(&mut self) -> Result<char, Refusal> {
        let byte = self.byte().ok_or_else(|| self.malformed())?;
        self.at += 1;
        Ok(match byte {
            b'"' | b'\\' | b'/' => char::from(byte),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let mut code = self.hex()?;
                if (0xd800..0xdc00).contains(&code) {
                    self.literal("\\u")?;
                    let low =
                        self.hex()?.checked_sub(0xdc00).filter(|low| *low < 0x400).ok_or_else(|| self.malformed())?;
                    code = 0x10000 + ((code - 0xd800) << 10) + low;
                }
                char::from_u32(code).ok_or_else(|| self.malformed())?
            }
            _ => return Err(self.malformed()),
        })
    }

    fn hex(&mut self) -> Result<u32, Refusal> {
        let digits =
            self.text.get(self.at..self.at + 4).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let code = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok()).ok_or_else(|| self.malformed())?;
        self.at += 4;
        Ok(code)
    }

    pub(super) fn deeper(&mut self) -> Result<(), Refusal> {
        self.at += 1;
        self.depth += 1;
        if self.depth > MAX_DEPTH { Err(Refusal("nested too deep".to_owned())) } else { Ok(()) }
    }

    /// What comes next: a scalar whole, of a container the bracket.
    pub(super) fn token(&mut self) -> Result<Token<'de>, Refusal> {
        Ok(match self.peek() {
            Some(b'n') => {
                self.literal("null")?;
                Token::Null
            }
            Some(b't') => {
                self.literal("true")?;
                Token::Boolean(true)
            }
            Some(b'f') => {
                self.literal("false")?;
                Token::Boolean(false)
            }
            Some(b'"') => match self.string()? {
                Ok(text) => Token::Text(text),
                Err(text) => Token::Unescaped(text),
            },
            Some(b'[') => {
                self.deeper()?;
                Token::Array
            }
            Some(b'{') => {
                self.deeper()?;
                Token::Object
            }
            Some(b'-' | b'0'..=b'9') => match self.number()? {
                (number, true) if let Ok(number) = number.parse() => Token::Unsigned(number),
                (number, true) if let Ok(number) = number.parse() => Token::Signed(number),
                (number, _) => Token::Fraction(number),
            },
            _ => return Err(self.malformed()),
        })
    }

    pub(super) fn close(&mut self, bracket: u8) -> Result<(), Refusal> {
        self.depth -= 1;
        self.expect(bracket)
    }
}

/// A scalar, or the beginning of a container.
pub(super) enum Token<'de> {
    Null,
    Boolean(bool),
    Text(&'de str),
    Unescaped(String),
    Unsigned(u64),
    Signed(i64),
    /// A number that is no integer, or too large for one.
    Fraction(&'de str),
    Array,
    Object,
}
