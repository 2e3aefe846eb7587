//! The grammar of label selectors: `labels.Parse` of apimachinery, token by token.
//!
//! The lexer reads bytes, and a NUL is odd: directly after a word or an operator it vanishes, elsewhere it ends the text.

use super::{LabelOperator, LabelRequirement, SelectorError};
use crate::names::is_dns_subdomain;

/// The longest value, and the longest name of a key.
const MAX_NAME: usize = 63;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token<'a> {
    End,
    /// Also `in` and `notin`, which are words where a key or a value is expected.
    Word(&'a str),
    Symbol(&'a str),
}

pub(super) struct Parser<'a> {
    tokens: Vec<(Token<'a>, usize)>,
    next: usize,
    end: usize,
}

impl<'a> Parser<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { tokens: tokens(text), next: 0, end: text.len() }
    }

    /// Parses all requirements.
    pub(super) fn requirements(mut self) -> Result<Vec<LabelRequirement>, SelectorError> {
        let mut all = Vec::new();
        if self.peek() == Token::End {
            return Ok(all);
        }
        loop {
            all.push(self.requirement()?);
            match self.peek() {
                Token::End => return Ok(all),
                Token::Symbol(",") => self.next += 1,
                _ => return self.refuse("expected a comma"),
            }
        }
    }

    fn requirement(&mut self) -> Result<LabelRequirement, SelectorError> {
        let absent = self.eat("!");
        let key = match self.peek() {
            Token::Word(word) if is_key(word) => word.to_owned(),
            Token::Word(_) => return self.refuse("not a label key"),
            Token::End | Token::Symbol(_) => return self.refuse("expected a label key"),
        };
        self.next += 1;
        let operator = match self.peek() {
            // Only a comma may follow `!key`.
            _ if absent => LabelOperator::DoesNotExist,
            Token::End | Token::Symbol(",") => LabelOperator::Exists,
            Token::Symbol("=" | "==") => LabelOperator::In(vec![self.operand()?]),
            Token::Symbol("!=") => LabelOperator::NotIn(vec![self.operand()?]),
            Token::Symbol(">") => LabelOperator::Greater(self.number()?),
            Token::Symbol("<") => LabelOperator::Less(self.number()?),
            Token::Word("in") => LabelOperator::In(self.set()?),
            Token::Word("notin") => LabelOperator::NotIn(self.set()?),
            Token::Word(_) | Token::Symbol(_) => return self.refuse("expected an operator"),
        };
        Ok(LabelRequirement { key, operator })
    }

    /// Skips the operator, and parses its value, which may be missing.
    fn operand(&mut self) -> Result<String, SelectorError> {
        self.next += 1;
        match self.peek() {
            Token::End | Token::Symbol(",") => Ok(String::new()),
            Token::Word(_) => self.value(),
            Token::Symbol(_) => self.refuse("not a label value"),
        }
    }

    fn number(&mut self) -> Result<i64, SelectorError> {
        let start = self.position();
        let value = self.operand()?;
        value.parse().map_err(|_| SelectorError { position: start, reason: "expected an integer" })
    }

    fn value(&mut self) -> Result<String, SelectorError> {
        match self.peek() {
            Token::Word(word) if is_value(word) => {
                self.next += 1;
                Ok(word.to_owned())
            }
            _ => self.refuse("not a label value"),
        }
    }

    /// Skips the operator, and parses `(a,b)`. Values may be empty, `()` has one.
    fn set(&mut self) -> Result<Vec<String>, SelectorError> {
        self.next += 1;
        if !self.eat("(") {
            return self.refuse("expected (");
        }
        let mut values = Vec::new();
        if self.peek() == Token::Symbol(")") {
            values.push(String::new());
        }
        while !self.eat(")") {
            match self.peek() {
                Token::Word(_) => {
                    values.push(self.value()?);
                    if !matches!(self.peek(), Token::Symbol("," | ")")) {
                        return self.refuse("expected , or )");
                    }
                }
                Token::Symbol(",") => self.comma(&mut values)?,
                Token::End | Token::Symbol(_) => return self.refuse("expected a value, a comma or )"),
            }
        }
        values.sort_unstable();
        values.dedup();
        Ok(values)
    }

    /// Skips a comma of a set, or two. As in apimachinery, two commas do not stand before `)`, but one and three do.
    fn comma(&mut self, values: &mut Vec<String>) -> Result<(), SelectorError> {
        self.next += 1;
        let ends = self.peek() == Token::Symbol(")");
        let is_double = self.eat(",");
        if values.is_empty() || ends || is_double {
            values.push(String::new());
        }
        match is_double && self.peek() == Token::Symbol(")") {
            true => self.refuse("expected a value or a comma"),
            false => Ok(()),
        }
    }

    fn peek(&self) -> Token<'a> {
        self.tokens.get(self.next).map_or(Token::End, |(token, _)| *token)
    }

    fn eat(&mut self, symbol: &'static str) -> bool {
        let found = self.peek() == Token::Symbol(symbol);
        self.next += usize::from(found);
        found
    }

    fn position(&self) -> usize {
        self.tokens.get(self.next).map_or(self.end, |(_, position)| *position)
    }

    fn refuse<T>(&self, reason: &'static str) -> Result<T, SelectorError> {
        Err(SelectorError { position: self.position(), reason })
    }
}

/// Splits a selector into its tokens. The end is not among them.
fn tokens(text: &str) -> Vec<(Token<'_>, usize)> {
    let (mut tokens, mut at) = (Vec::new(), 0);
    loop {
        let rest = text.get(at..).unwrap_or_default();
        let rest = rest.trim_start_matches(is_space);
        at = text.len() - rest.len();
        let symbol = ["==", "!=", "=", "!", "(", ")", ",", ">", "<"].iter().find(|symbol| rest.starts_with(**symbol));
        let token = match (symbol, rest.chars().next()) {
            (_, None | Some('\0')) => return tokens,
            (Some(symbol), _) => Token::Symbol(symbol),
            (None, _) => {
                let is_end = |char: char| char == '\0' || is_space(char) || "=!(),><".contains(char);
                Token::Word(rest.get(..rest.find(is_end).unwrap_or(rest.len())).unwrap_or_default())
            }
        };
        tokens.push((token, at));
        let (Token::Word(text) | Token::Symbol(text)) = token else { return tokens };
        at += text.len();
        at += usize::from(rest.get(text.len()..).is_some_and(|after| after.starts_with('\0')));
    }
}

fn is_space(char: char) -> bool {
    matches!(char, ' ' | '\t' | '\r' | '\n')
}

/// `validation.IsQualifiedName`: a name, with an optional DNS subdomain before it.
fn is_key(text: &str) -> bool {
    let (prefix, name) = text.split_once('/').map_or((None, text), |(prefix, name)| (Some(prefix), name));
    !name.is_empty() && is_value(name) && prefix.is_none_or(is_dns_subdomain)
}

/// `validation.IsValidLabelValue`: empty, or 63 letters, digits, `-`, `_` and `.` that begin and end with a letter or digit.
fn is_value(text: &str) -> bool {
    let is_edge = |byte: Option<&u8>| byte.is_none_or(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= MAX_NAME
        && is_edge(bytes.first())
        && is_edge(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}
