//! The JSON reader behind settings: a serde deserializer that knows at which key it stands. It holds the text, a position and
//! the keys around it.

use serde::de::value::{BorrowedStrDeserializer, StrDeserializer};
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error as _, IntoDeserializer, MapAccess, SeqAccess,
    Unexpected, VariantAccess, Visitor,
};

use super::Refusal;

/// How deep objects and arrays may nest.
const MAX_DEPTH: usize = 64;

/// One container around the place that is being read.
enum Step {
    Member(String),
    Element(usize),
}

/// Reads a JSON text from front to back.
pub(super) struct Reader<'de> {
    text: &'de str,
    at: usize,
    /// The containers around; left as they are when something is refused.
    steps: Vec<Step>,
    depth: usize,
}

impl<'de> Reader<'de> {
    pub(super) fn new(text: &'de str) -> Self {
        Self {
            text,
            at: 0,
            steps: Vec::new(),
            depth: 0,
        }
    }

    /// The dotted key of the value being read: `addresses[2]`.
    pub(super) fn key(&self) -> String {
        self.steps
            .iter()
            .fold(String::new(), |key, step| match step {
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
        if self.peek().is_some() {
            Err(self.malformed())
        } else {
            Ok(())
        }
    }

    fn malformed(&self) -> Refusal {
        Refusal(format!("not JSON at byte {}", self.at))
    }

    /// Consumes the next byte if it is this one.
    fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, byte: u8) -> Result<(), Refusal> {
        if self.eat(byte) {
            Ok(())
        } else {
            Err(self.malformed())
        }
    }

    fn literal(&mut self, literal: &str) -> Result<(), Refusal> {
        if !self
            .text
            .get(self.at..)
            .is_some_and(|rest| rest.starts_with(literal))
        {
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
        let mut broken = self
            .text
            .as_bytes()
            .get(self.at.saturating_sub(1))
            .is_none_or(|last| !last.is_ascii_digit());
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
    fn string(&mut self) -> Result<Result<&'de str, String>, Refusal> {
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
    fn name(&mut self) -> Result<String, Refusal> {
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
                    let low = self
                        .hex()?
                        .checked_sub(0xdc00)
                        .filter(|low| *low < 0x400)
                        .ok_or_else(|| self.malformed())?;
                    code = 0x10000 + ((code - 0xd800) << 10) + low;
                }
                char::from_u32(code).ok_or_else(|| self.malformed())?
            }
            _ => return Err(self.malformed()),
        })
    }

    fn hex(&mut self) -> Result<u32, Refusal> {
        let digits = self
            .text
            .get(self.at..self.at + 4)
            .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let code = digits
            .and_then(|digits| u32::from_str_radix(digits, 16).ok())
            .ok_or_else(|| self.malformed())?;
        self.at += 4;
        Ok(code)
    }

    fn deeper(&mut self) -> Result<(), Refusal> {
        self.at += 1;
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            Err(Refusal("nested too deep".to_owned()))
        } else {
            Ok(())
        }
    }

    /// What comes next: a scalar whole, of a container the bracket.
    fn token(&mut self) -> Result<Token<'de>, Refusal> {
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

    /// Whatever comes next, as the visitor takes it. Generic over visitors, so it does no more than tell them.
    fn value<V: Visitor<'de>, const FRACTIONS: u8>(
        &mut self,
        visitor: V,
    ) -> Result<V::Value, Refusal> {
        match self.token()? {
            Token::Null => visitor.visit_unit(),
            Token::Boolean(value) => visitor.visit_bool(value),
            Token::Text(text) => visitor.visit_borrowed_str(text),
            Token::Unescaped(text) => visitor.visit_string(text),
            Token::Unsigned(number) => visitor.visit_u64(number),
            Token::Signed(number) => visitor.visit_i64(number),
            Token::Fraction(number) => match FRACTIONS {
                IGNORED => visitor.visit_unit(),
                PARSED => visitor.visit_f64(number.parse().map_err(Refusal::custom)?),
                _ => Err(Refusal::invalid_type(Unexpected::Float(0.0), &visitor)),
            },
            Token::Array => {
                let value = visitor.visit_seq(Elements {
                    reader: self,
                    index: 0,
                })?;
                self.close(b']')?;
                Ok(value)
            }
            Token::Object => {
                let value = visitor.visit_map(Members {
                    reader: self,
                    first: true,
                })?;
                self.close(b'}')?;
                Ok(value)
            }
        }
    }

    fn close(&mut self, bracket: u8) -> Result<(), Refusal> {
        self.depth -= 1;
        self.expect(bracket)
    }
}

/// A scalar, or the beginning of a container.
enum Token<'de> {
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

/// What becomes of numbers that are no integers: parsing them is linked only into filters that ask for them.
const REFUSED: u8 = 0;
const PARSED: u8 = 1;
const IGNORED: u8 = 2;

macro_rules! values {
    ($($method:ident $(($($argument:ty),*))? = $fractions:ident,)*) => {
        $(fn $method<V: Visitor<'de>>(self $($(, _: $argument)*)?, visitor: V) -> Result<V::Value, Refusal> {
            self.value::<V, $fractions>(visitor)
        })*
    };
}

impl<'de> Deserializer<'de> for &mut Reader<'de> {
    type Error = Refusal;

    values! {
        deserialize_any = PARSED,
        deserialize_f32 = PARSED,
        deserialize_f64 = PARSED,
        deserialize_ignored_any = IGNORED,
        deserialize_bool = REFUSED,
        deserialize_i8 = REFUSED,
        deserialize_i16 = REFUSED,
        deserialize_i32 = REFUSED,
        deserialize_i64 = REFUSED,
        deserialize_u8 = REFUSED,
        deserialize_u16 = REFUSED,
        deserialize_u32 = REFUSED,
        deserialize_u64 = REFUSED,
        deserialize_char = REFUSED,
        deserialize_str = REFUSED,
        deserialize_string = REFUSED,
        deserialize_bytes = REFUSED,
        deserialize_byte_buf = REFUSED,
        deserialize_unit = REFUSED,
        deserialize_unit_struct(&'static str) = REFUSED,
        deserialize_seq = REFUSED,
        deserialize_tuple(usize) = REFUSED,
        deserialize_tuple_struct(&'static str, usize) = REFUSED,
        deserialize_map = REFUSED,
        deserialize_struct(&'static str, &'static [&'static str]) = REFUSED,
        deserialize_identifier = REFUSED,
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refusal> {
        if self.peek() == Some(b'n') {
            self.literal("null")?;
            return visitor.visit_none();
        }
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Refusal> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refusal> {
        match self.peek() {
            Some(b'"') => match self.string()? {
                Ok(name) => visitor.visit_enum(BorrowedStrDeserializer::new(name)),
                Err(name) => visitor.visit_enum(name.into_deserializer()),
            },
            Some(b'{') => {
                self.deeper()?;
                let value = visitor.visit_enum(Variant { reader: self })?;
                self.close(b'}')?;
                Ok(value)
            }
            _ => self.value::<V, REFUSED>(visitor),
        }
    }
}

/// The elements of an array, after its bracket.
struct Elements<'r, 'de> {
    reader: &'r mut Reader<'de>,
    index: usize,
}

impl<'de> SeqAccess<'de> for Elements<'_, 'de> {
    type Error = Refusal;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Refusal> {
        if self.reader.peek() == Some(b']') && self.index == 0 {
            return Ok(None);
        }
        if self.index > 0 && !self.reader.eat(b',') {
            // The bracket is the container's to expect.
            return Ok(None);
        }
        self.reader.steps.push(Step::Element(self.index));
        let value = seed.deserialize(&mut *self.reader)?;
        self.reader.steps.pop();
        self.index += 1;
        Ok(Some(value))
    }
}

/// The members of an object, after its brace.
struct Members<'r, 'de> {
    reader: &'r mut Reader<'de>,
    first: bool,
}

impl<'de> MapAccess<'de> for Members<'_, 'de> {
    type Error = Refusal;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Refusal> {
        if self.first && self.reader.peek() == Some(b'}') || !self.first && !self.reader.eat(b',') {
            return Ok(None);
        }
        self.first = false;
        let name = self.reader.name()?;
        // Before the name is judged, so that an unknown one is named.
        self.reader.steps.push(Step::Member(name.clone()));
        let key: StrDeserializer<'_, Refusal> = name.as_str().into_deserializer();
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Refusal> {
        self.reader.expect(b':')?;
        let value = seed.deserialize(&mut *self.reader)?;
        self.reader.steps.pop();
        Ok(value)
    }
}

/// An enum's variant with content, `{"variant": content}`, after its brace.
struct Variant<'r, 'de> {
    reader: &'r mut Reader<'de>,
}

impl<'de> EnumAccess<'de> for Variant<'_, 'de> {
    type Error = Refusal;
    type Variant = Self;

    fn variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<(T::Value, Self), Refusal> {
        let name = self.reader.name()?;
        self.reader.steps.push(Step::Member(name.clone()));
        let key: StrDeserializer<'_, Refusal> = name.as_str().into_deserializer();
        let variant = seed.deserialize(key)?;
        self.reader.expect(b':')?;
        Ok((variant, self))
    }
}

impl<'de> Variant<'_, 'de> {
    /// The content, whose key is done when it is read.
    fn content<T>(
        self,
        read: impl FnOnce(&mut Reader<'de>) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let content = read(self.reader)?;
        self.reader.steps.pop();
        Ok(content)
    }
}

impl<'de> VariantAccess<'de> for Variant<'_, 'de> {
    type Error = Refusal;

    fn unit_variant(self) -> Result<(), Refusal> {
        self.content(|reader| serde::Deserialize::deserialize(reader))
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Refusal> {
        self.content(|reader| seed.deserialize(reader))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Refusal> {
        self.content(|reader| reader.deserialize_seq(visitor))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refusal> {
        self.content(|reader| reader.deserialize_map(visitor))
    }
}
