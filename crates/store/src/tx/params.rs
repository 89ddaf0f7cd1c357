//! Lists of parameters.

use windlass_model::{Failure, failure::class};

use super::value::{ToValue, Value};

/// The parameters of a statement, in the order of `$1`, `$2`, …: a tuple, an array, a slice or a `Vec`, and `()` for none.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a list of parameters",
    note = "write a tuple, also for one parameter: `(id,)`; write `()` for none"
)]
pub trait Params {
    /// The values, in order.
    fn into_values(self) -> Result<Vec<Value>, Failure>;
}

/// The value of a parameter. An error names it by its number.
fn value(number: usize, param: &dyn ToValue) -> Result<Value, Failure> {
    param.to_value().map_err(|why| {
        Failure::stop(format!("the parameter ${number} cannot be sent: {why}")).class(class::DATA)
    })
}

impl Params for () {
    fn into_values(self) -> Result<Vec<Value>, Failure> {
        Ok(Vec::new())
    }
}

impl<T: ToValue> Params for &[T] {
    fn into_values(self) -> Result<Vec<Value>, Failure> {
        (1..).zip(self).map(|(number, param)| value(number, param)).collect()
    }
}

impl<T: ToValue, const N: usize> Params for [T; N] {
    fn into_values(self) -> Result<Vec<Value>, Failure> {
        self.as_slice().into_values()
    }
}

impl<T: ToValue, const N: usize> Params for &[T; N] {
    fn into_values(self) -> Result<Vec<Value>, Failure> {
        self.as_slice().into_values()
    }
}

impl<T: ToValue> Params for Vec<T> {
    fn into_values(self) -> Result<Vec<Value>, Failure> {
        self.as_slice().into_values()
    }
}

impl<T: ToValue> Params for &Vec<T> {
    fn into_values(self) -> Result<Vec<Value>, Failure> {
        self.as_slice().into_values()
    }
}

macro_rules! tuples {
    ($($($param:ident $number:tt),+;)*) => {$(
        impl<$($param: ToValue),+> Params for ($($param,)+) {
            fn into_values(self) -> Result<Vec<Value>, Failure> {
                Ok(vec![$(value($number + 1, &self.$number)?),+])
            }
        }
    )*};
}

tuples! {
    A 0;
    A 0, B 1;
    A 0, B 1, C 2;
    A 0, B 1, C 2, D 3;
    A 0, B 1, C 2, D 3, E 4;
    A 0, B 1, C 2, D 3, E 4, F 5;
    A 0, B 1, C 2, D 3, E 4, F 5, G 6;
    A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7;
    A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8;
    A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9;
    A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10;
    A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11;
    A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11, M 12;
    A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11, M 12, N 13;
    A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11, M 12, N 13, O 14;
    A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11, M 12, N 13, O 14, P 15;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_keep_their_order() {
        let values = (7, "a", None::<bool>).into_values().expect("values");
        assert_eq!(values, [Value::Int(7), Value::Text("a".into()), Value::Null]);
        let ints = [Value::Int(1), Value::Int(2)];
        assert_eq!([1, 2].into_values().expect("values"), ints);
        assert_eq!((&[1, 2]).into_values().expect("values"), ints);
        assert_eq!(vec![1, 2].into_values().expect("values"), ints);
        assert_eq!((&ints[..]).into_values().expect("values"), ints);
        assert_eq!(().into_values().expect("values"), []);
    }

    #[test]
    fn an_error_names_the_parameter() {
        let failure = (1, u64::MAX).into_values().expect_err("too large");
        assert!(failure.message.contains("$2"), "{failure}");
    }
}
