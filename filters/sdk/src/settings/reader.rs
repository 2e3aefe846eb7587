//! The JSON reader for settings. It splits the text into tokens and tracks the key of the current value. It holds the
//! text, a position and the keys of the open containers.

use super::SettingsError;

/// The maximum depth of nested objects and arrays.
const MAX_DEPTH: usize = 64;

/// An open container around the current value.
pub(super) enum Container {
    Member(String),
    Element(usize),
}

/// Reads a JSON text from front to back.
pub(super) struct Reader<'de> {
    text: &'de str,
    at: usize,
    /// The open containers. They stay as they are after an error, so that the error can name the key.
    pub(super) containers: Vec<Container>,
    depth: usize,
}

impl<'de> Reader<'de> {
    pub(super) fn new(text: &'de str) -> Self {
        Self { text, at: 0, containers: Vec::new(), depth: 0 }
    }

    /// Returns the dotted key of the current value: `addresses[2]`.
    pub(super) fn key(&self) -> String {
        self.containers.iter().fold(String::new(), |key, step| match step {
            Container::Member(name) if key.is_empty() => key + name,
            Container::Member(name) => key + "." + name,
            Container::Element(index) => key + "[" + &index.to_string() + "]",
        })
    }

    /// Skips white space and returns the next byte without consuming it.
    pub(super) fn peek(&mut self) -> Option<u8> {
        while let Some(byte) = self.text.as_bytes().get(self.at) {
            if !matches!(byte, b' ' | b'\t' | b'\n' | b'\r') {
                return Some(*byte);
            }
            self.at += 1;
        }
        None
    }

    /// Fails unless only white space is left.
    pub(super) fn end(&mut self) -> Result<(), SettingsError> {
        if self.peek().is_some() { Err(self.malformed()) } else { Ok(()) }
    }

    fn malformed(&self) -> SettingsError {
        SettingsError(format!("not JSON at byte {}", self.at))
    }

    /// Consumes the next byte if it is this one.
    pub(super) fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    pub(super) fn expect(&mut self, byte: u8) -> Result<(), SettingsError> {
        if self.eat(byte) { Ok(()) } else { Err(self.malformed()) }
    }

    pub(super) fn literal(&mut self, literal: &str) -> Result<(), SettingsError> {
        if !self.text.get(self.at..).is_some_and(|rest| rest.starts_with(literal)) {
            return Err(self.malformed());
        }
        self.at += literal.len();
        Ok(())
    }

    /// Consumes a number. Returns its text and whether it is an integer.
    fn number(&mut self) -> Result<(&'de str, bool), SettingsError> {
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

    /// Consumes a string. Borrows it, or copies it if it contains escapes.
    pub(super) fn string(&mut self) -> Result<Result<&'de str, String>, SettingsError> {
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

    /// Consumes the name of a member.
    pub(super) fn name(&mut self) -> Result<String, SettingsError> {
        self.peek();
        Ok(match self.string()? {
            Ok(name) => name.to_owned(),
            Err(name) => name,
        })
    }

    /// Consumes the rest of an escape after its backslash.
    fn escape(&mut self) -> Result<char, SettingsError> {
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

    fn hex(&mut self) -> Result<u32, SettingsError> {
        let digits =
            self.text.get(self.at..self.at + 4).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let code = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok()).ok_or_else(|| self.malformed())?;
        self.at += 4;
        Ok(code)
    }

    pub(super) fn deeper(&mut self) -> Result<(), SettingsError> {
        self.at += 1;
        self.depth += 1;
        if self.depth > MAX_DEPTH { Err(SettingsError("nested too deep".to_owned())) } else { Ok(()) }
    }

    /// Consumes the next token: a whole scalar, or the opening bracket of a container.
    pub(super) fn token(&mut self) -> Result<Token<'de>, SettingsError> {
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
            Some(b'-' | b'0'..=b'9') => {
                let (number, is_integer) = self.number()?;
                let integer = number.parse().map(Token::Unsigned).or_else(|_| number.parse().map(Token::Signed));
                integer.ok().filter(|_| is_integer).unwrap_or(Token::Fraction(number))
            }
            _ => return Err(self.malformed()),
        })
    }

    pub(super) fn close(&mut self, bracket: u8) -> Result<(), SettingsError> {
        self.depth -= 1;
        self.expect(bracket)
    }
}

/// A scalar, or the start of a container.
pub(super) enum Token<'de> {
    Null,
    Boolean(bool),
    Text(&'de str),
    Unescaped(String),
    Unsigned(u64),
    Signed(i64),
    /// A number that is not an integer, or does not fit one.
    Fraction(&'de str),
    Array,
    Object,
}
