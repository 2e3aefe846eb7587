//! A serde deserializer over the reader.

use serde::de::value::{BorrowedStrDeserializer, StrDeserializer};
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error as _, IntoDeserializer, MapAccess, SeqAccess, Unexpected,
    VariantAccess, Visitor,
};

use super::SettingsError;
use super::reader::{Container, Reader, Token};

impl<'de> Reader<'de> {
    /// Passes the next value to the visitor. It is generic over visitors, so it does nothing else, to keep modules
    /// small.
    fn value<V: Visitor<'de>, const FRACTIONS: u8>(&mut self, visitor: V) -> Result<V::Value, SettingsError> {
        match self.token()? {
            Token::Null => visitor.visit_unit(),
            Token::Boolean(value) => visitor.visit_bool(value),
            Token::Text(text) => visitor.visit_borrowed_str(text),
            Token::Unescaped(text) => visitor.visit_string(text),
            Token::Unsigned(number) => visitor.visit_u64(number),
            Token::Signed(number) => visitor.visit_i64(number),
            Token::Fraction(number) => match FRACTIONS {
                IGNORED => visitor.visit_unit(),
                PARSED => visitor.visit_f64(number.parse().map_err(SettingsError::custom)?),
                _ => Err(SettingsError::invalid_type(Unexpected::Float(0.0), &visitor)),
            },
            Token::Array => {
                let value = visitor.visit_seq(SequenceReader { reader: self, index: 0 })?;
                self.close(b']')?;
                Ok(value)
            }
            Token::Object => {
                let value = visitor.visit_map(MapReader { reader: self, first: true })?;
                self.close(b'}')?;
                Ok(value)
            }
        }
    }
}

/// What to do with numbers that are not integers. Float parsing is linked only into filters with float settings.
const REFUSED: u8 = 0;
const PARSED: u8 = 1;
const IGNORED: u8 = 2;

macro_rules! values {
    ($($method:ident $(($($argument:ty),*))? = $fractions:ident,)*) => {
        $(fn $method<V: Visitor<'de>>(self $($(, _: $argument)*)?, visitor: V) -> Result<V::Value, SettingsError> {
            self.value::<V, $fractions>(visitor)
        })*
    };
}

impl<'de> Deserializer<'de> for &mut Reader<'de> {
    type Error = SettingsError;

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

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SettingsError> {
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
    ) -> Result<V::Value, SettingsError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, SettingsError> {
        match self.peek() {
            Some(b'"') => match self.string()? {
                Ok(name) => visitor.visit_enum(BorrowedStrDeserializer::new(name)),
                Err(name) => visitor.visit_enum(name.into_deserializer()),
            },
            Some(b'{') => {
                self.deeper()?;
                let value = visitor.visit_enum(VariantReader { reader: self })?;
                self.close(b'}')?;
                Ok(value)
            }
            _ => self.value::<V, REFUSED>(visitor),
        }
    }
}

/// The elements of an array, after its bracket.
struct SequenceReader<'r, 'de> {
    reader: &'r mut Reader<'de>,
    index: usize,
}

impl<'de> SeqAccess<'de> for SequenceReader<'_, 'de> {
    type Error = SettingsError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, SettingsError> {
        if self.reader.peek() == Some(b']') && self.index == 0 {
            return Ok(None);
        }
        if self.index > 0 && !self.reader.eat(b',') {
            // The container consumes the bracket.
            return Ok(None);
        }
        self.reader.containers.push(Container::Element(self.index));
        let value = seed.deserialize(&mut *self.reader)?;
        self.reader.containers.pop();
        self.index += 1;
        Ok(Some(value))
    }
}

/// The members of an object, after its brace.
struct MapReader<'r, 'de> {
    reader: &'r mut Reader<'de>,
    first: bool,
}

impl<'de> MapAccess<'de> for MapReader<'_, 'de> {
    type Error = SettingsError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, SettingsError> {
        if self.first && self.reader.peek() == Some(b'}') || !self.first && !self.reader.eat(b',') {
            return Ok(None);
        }
        self.first = false;
        let name = self.reader.name()?;
        // Before the visitor sees the name, so that an error names an unknown key.
        self.reader.containers.push(Container::Member(name.clone()));
        let key: StrDeserializer<'_, SettingsError> = name.as_str().into_deserializer();
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, SettingsError> {
        self.reader.expect(b':')?;
        let value = seed.deserialize(&mut *self.reader)?;
        self.reader.containers.pop();
        Ok(value)
    }
}

/// A variant of an enum with content, `{"variant": content}`, after its brace.
struct VariantReader<'r, 'de> {
    reader: &'r mut Reader<'de>,
}

impl<'de> EnumAccess<'de> for VariantReader<'_, 'de> {
    type Error = SettingsError;
    type Variant = Self;

    fn variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<(T::Value, Self), SettingsError> {
        let name = self.reader.name()?;
        self.reader.containers.push(Container::Member(name.clone()));
        let key: StrDeserializer<'_, SettingsError> = name.as_str().into_deserializer();
        let variant = seed.deserialize(key)?;
        self.reader.expect(b':')?;
        Ok((variant, self))
    }
}

impl<'de> VariantReader<'_, 'de> {
    /// Deserializes the content. Closes its key afterwards.
    fn content<T>(self, read: impl FnOnce(&mut Reader<'de>) -> Result<T, SettingsError>) -> Result<T, SettingsError> {
        let content = read(self.reader)?;
        self.reader.containers.pop();
        Ok(content)
    }
}

impl<'de> VariantAccess<'de> for VariantReader<'_, 'de> {
    type Error = SettingsError;

    fn unit_variant(self) -> Result<(), SettingsError> {
        self.content(|reader| serde::Deserialize::deserialize(reader))
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, SettingsError> {
        self.content(|reader| seed.deserialize(reader))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, SettingsError> {
        self.content(|reader| reader.deserialize_seq(visitor))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, SettingsError> {
        self.content(|reader| reader.deserialize_map(visitor))
    }
}
