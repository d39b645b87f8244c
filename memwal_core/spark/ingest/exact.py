"""Texts of which Spark keeps a part only: it rounds and cuts what a type has no room for, without a word."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from memwal_core.errors import InvalidRequestError
from memwal_core.ingest.source import Source

_CUT = (DateType, DecimalType, DoubleType, FloatType, TimestampNTZType, TimestampType)
_MOST_DIGITS = 38
_BELOW_MICROSECONDS = r"[.,][0-9]{6}[0-9]*[1-9]"
_POINT, _GROUPS = "decimal point", "between groups of digits"
_TIME_OF_DAY = r"^\s*[+-]?[0-9]+-[0-9]+-[0-9]+[T ]\s*(?!00:00(:00([.]0*)?)?Z?\s*$)\S"


def as_texts(types: StructType) -> StructType:
    """Return the types with texts in place of those that Spark reads in part."""
    return StructType([StructField(field.name, _as_texts(field.dataType)) for field in types])


def require_exact(texts: DataFrame, types: StructType, source: Source, options: Mapping[str, str]) -> None:
    """Raise ``InvalidRequestError`` if Spark would change values of a text source.

    Args:
        texts: The rows, in ``as_texts``.
        types: In which they are to be read.
        source: For the error.
        options: Of the reader.
    """
    told = {name.lower(): value for name, value in options.items()}
    if "locale" in told:
        java = texts.sparkSession.sparkContext._jvm.java  # type: ignore[union-attr]  # noqa: SLF001 - no public way
        symbols = java.text.DecimalFormatSymbols.getInstance(java.util.Locale.forLanguageTag(told["locale"]))
        told[_POINT], told[_GROUPS] = f"[{symbols.getDecimalSeparator()}]", f"[{symbols.getGroupingSeparator()}]"
    names = [f"c{number}" for number in range(len(types))]
    marks = {}
    for name, field in zip(names, types, strict=True):
        mark = _is_cut(sf.col(name), field.dataType, told)
        if mark is not None:
            marks[field.name] = sf.count_if(mark)
    if not marks:
        return
    found = texts.toDF(*names).agg(*(count.alias(f"n{number}") for number, count in enumerate(marks.values()))).first()
    cut = {name: rows for name, rows in zip(marks, found or (), strict=True) if rows}
    if cut:
        raise InvalidRequestError(
            "values of the source do not fit the type of their column; the whole batch was refused",
            remedy="round them at their source, or give the table columns that hold all of their digits; write "
            "decimals as the option `locale` of the reader says, which is en-US",
            source=str(source),
            rows=cut,
            types={field.name: field.dataType.simpleString() for field in types if field.name in cut},
        )


def require_known_fields(found: Sequence[StructField], types: StructType, source: Source) -> None:
    """Raise ``InvalidRequestError`` if nested values have fields that Spark would leave out.

    Args:
        found: The columns that the source has.
        types: In which they are to be read.
        source: For the error, which says nothing that the source says.
    """
    known = {field.name: field.dataType for field in types}
    counts = {each.name: _unknown_fields(each.dataType, known[each.name]) for each in found if each.name in known}
    unknown = {name: count for name, count in counts.items() if count}
    if unknown:
        raise InvalidRequestError(
            "nested values of the source have fields that the table does not have; the whole batch was refused",
            remedy="compare the names of nested fields with those of the table",
            source=str(source),
            unknown_fields=unknown,
            types={name: known[name].simpleString() for name in unknown},
        )


def _unknown_fields(found: DataType, wanted: DataType) -> int:
    match found, wanted:
        case ArrayType(), ArrayType():
            return _unknown_fields(found.elementType, wanted.elementType)
        case StructType(), MapType():
            return sum(_unknown_fields(field.dataType, wanted.valueType) for field in found)
        case StructType(), StructType():
            known = {field.name: field.dataType for field in wanted}
            return sum(_unknown_fields(each.dataType, known[each.name]) if each.name in known else 1 for each in found)
        case _:
            return 0


def _as_texts(kind: DataType) -> DataType:
    match kind:
        case ArrayType():
            return ArrayType(_as_texts(kind.elementType))
        case MapType():
            return MapType(kind.keyType, _as_texts(kind.valueType))
        case StructType():
            return as_texts(kind)
        case _:
            return StringType() if isinstance(kind, _CUT) else kind


def _is_cut(text: Column, kind: DataType, told: Mapping[str, str]) -> Column | None:
    """Return whether Spark would change what a text says; None if it never does."""
    match kind:
        case ArrayType():
            return _any_is_cut(text, kind.elementType, told)
        case MapType():
            return _any_is_cut(sf.map_values(text), kind.valueType, told)
        case StructType():
            inner = [_is_cut(text.getField(field.name), field.dataType, told) for field in kind]
            return reduce(or_, found) if (found := [each for each in inner if each is not None]) else None
        case DecimalType():
            return sf.coalesce(_is_rounded(text, kind, told) | _is_misread(text, told), sf.lit(False))
        case TimestampType() | TimestampNTZType():
            return sf.coalesce(text.rlike(_BELOW_MICROSECONDS), sf.lit(False))
        case DateType():
            return None if "dateformat" in told else sf.coalesce(text.rlike(_TIME_OF_DAY), sf.lit(False))
        case FloatType() | DoubleType():
            is_endless = sf.abs(text.try_cast(kind)) == sf.lit(float("inf"))
            return sf.coalesce(text.rlike("[0-9]") & is_endless, sf.lit(False))
        case _:
            return None


def _any_is_cut(texts: Column, kind: DataType, told: Mapping[str, str]) -> Column | None:
    if _is_cut(sf.lit(""), kind, told) is None:
        return None
    found = sf.exists(texts, lambda text: _is_cut(text, kind, told))  # type: ignore[arg-type,return-value]
    return sf.coalesce(found, sf.lit(False))


def _is_rounded(text: Column, kind: DecimalType, told: Mapping[str, str]) -> Column:
    more = text.rlike(f"{told.get(_POINT, '[.]')}[0-9]{{{kind.scale}}}[0-9]*[1-9]")
    exact = text.try_cast(DecimalType(_MOST_DIGITS, _MOST_DIGITS - kind.precision + kind.scale))
    return sf.when(text.rlike("[eE]"), exact != text.try_cast(kind)).otherwise(more)


def _is_misread(text: Column, told: Mapping[str, str]) -> Column:
    """Tell whether a text has what divides groups of digits elsewhere, where Spark passes over it: 1,5 is 15 to it."""
    groups = told.get(_GROUPS, ",")
    grouped = rf"[0-9]{{1,3}}({groups}[0-9]{{2,3}})*{groups}[0-9]{{3}}"
    return text.rlike(groups) & ~text.rlike(rf"^\s*[+-]?{grouped}({told.get(_POINT, '[.]')}[0-9]*)?\s*$")
