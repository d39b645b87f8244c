from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class MemWalIndexDetails(_message.Message):
    __slots__ = ("mem_wal_list",)
    class MemWalId(_message.Message):
        __slots__ = ("region", "generation")
        REGION_FIELD_NUMBER: _ClassVar[int]
        GENERATION_FIELD_NUMBER: _ClassVar[int]
        region: str
        generation: int
        def __init__(self, region: _Optional[str] = ..., generation: _Optional[int] = ...) -> None: ...
    class MemWal(_message.Message):
        __slots__ = ("id", "mem_table_location", "wal_location", "wal_entries", "state", "owner_id", "last_updated_dataset_version")
        class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
            __slots__ = ()
            OPEN: _ClassVar[MemWalIndexDetails.MemWal.State]
            SEALED: _ClassVar[MemWalIndexDetails.MemWal.State]
            FLUSHED: _ClassVar[MemWalIndexDetails.MemWal.State]
            MERGED: _ClassVar[MemWalIndexDetails.MemWal.State]
        OPEN: MemWalIndexDetails.MemWal.State
        SEALED: MemWalIndexDetails.MemWal.State
        FLUSHED: MemWalIndexDetails.MemWal.State
        MERGED: MemWalIndexDetails.MemWal.State
        ID_FIELD_NUMBER: _ClassVar[int]
        MEM_TABLE_LOCATION_FIELD_NUMBER: _ClassVar[int]
        WAL_LOCATION_FIELD_NUMBER: _ClassVar[int]
        WAL_ENTRIES_FIELD_NUMBER: _ClassVar[int]
        STATE_FIELD_NUMBER: _ClassVar[int]
        OWNER_ID_FIELD_NUMBER: _ClassVar[int]
        LAST_UPDATED_DATASET_VERSION_FIELD_NUMBER: _ClassVar[int]
        id: MemWalIndexDetails.MemWalId
        mem_table_location: str
        wal_location: str
        wal_entries: bytes
        state: MemWalIndexDetails.MemWal.State
        owner_id: str
        last_updated_dataset_version: int
        def __init__(self, id: _Optional[_Union[MemWalIndexDetails.MemWalId, _Mapping]] = ..., mem_table_location: _Optional[str] = ..., wal_location: _Optional[str] = ..., wal_entries: _Optional[bytes] = ..., state: _Optional[_Union[MemWalIndexDetails.MemWal.State, str]] = ..., owner_id: _Optional[str] = ..., last_updated_dataset_version: _Optional[int] = ...) -> None: ...
    MEM_WAL_LIST_FIELD_NUMBER: _ClassVar[int]
    mem_wal_list: _containers.RepeatedCompositeFieldContainer[MemWalIndexDetails.MemWal]
    def __init__(self, mem_wal_list: _Optional[_Iterable[_Union[MemWalIndexDetails.MemWal, _Mapping]]] = ...) -> None: ...

class U64Segment(_message.Message):
    __slots__ = ("range", "range_with_holes", "range_with_bitmap", "sorted_array", "array")
    class Range(_message.Message):
        __slots__ = ("start", "end")
        START_FIELD_NUMBER: _ClassVar[int]
        END_FIELD_NUMBER: _ClassVar[int]
        start: int
        end: int
        def __init__(self, start: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...
    class RangeWithHoles(_message.Message):
        __slots__ = ("start", "end", "holes")
        START_FIELD_NUMBER: _ClassVar[int]
        END_FIELD_NUMBER: _ClassVar[int]
        HOLES_FIELD_NUMBER: _ClassVar[int]
        start: int
        end: int
        holes: EncodedU64Array
        def __init__(self, start: _Optional[int] = ..., end: _Optional[int] = ..., holes: _Optional[_Union[EncodedU64Array, _Mapping]] = ...) -> None: ...
    class RangeWithBitmap(_message.Message):
        __slots__ = ("start", "end", "bitmap")
        START_FIELD_NUMBER: _ClassVar[int]
        END_FIELD_NUMBER: _ClassVar[int]
        BITMAP_FIELD_NUMBER: _ClassVar[int]
        start: int
        end: int
        bitmap: bytes
        def __init__(self, start: _Optional[int] = ..., end: _Optional[int] = ..., bitmap: _Optional[bytes] = ...) -> None: ...
    RANGE_FIELD_NUMBER: _ClassVar[int]
    RANGE_WITH_HOLES_FIELD_NUMBER: _ClassVar[int]
    RANGE_WITH_BITMAP_FIELD_NUMBER: _ClassVar[int]
    SORTED_ARRAY_FIELD_NUMBER: _ClassVar[int]
    ARRAY_FIELD_NUMBER: _ClassVar[int]
    range: U64Segment.Range
    range_with_holes: U64Segment.RangeWithHoles
    range_with_bitmap: U64Segment.RangeWithBitmap
    sorted_array: EncodedU64Array
    array: EncodedU64Array
    def __init__(self, range: _Optional[_Union[U64Segment.Range, _Mapping]] = ..., range_with_holes: _Optional[_Union[U64Segment.RangeWithHoles, _Mapping]] = ..., range_with_bitmap: _Optional[_Union[U64Segment.RangeWithBitmap, _Mapping]] = ..., sorted_array: _Optional[_Union[EncodedU64Array, _Mapping]] = ..., array: _Optional[_Union[EncodedU64Array, _Mapping]] = ...) -> None: ...

class EncodedU64Array(_message.Message):
    __slots__ = ("u16_array", "u32_array", "u64_array")
    class U16Array(_message.Message):
        __slots__ = ("base", "offsets")
        BASE_FIELD_NUMBER: _ClassVar[int]
        OFFSETS_FIELD_NUMBER: _ClassVar[int]
        base: int
        offsets: bytes
        def __init__(self, base: _Optional[int] = ..., offsets: _Optional[bytes] = ...) -> None: ...
    class U32Array(_message.Message):
        __slots__ = ("base", "offsets")
        BASE_FIELD_NUMBER: _ClassVar[int]
        OFFSETS_FIELD_NUMBER: _ClassVar[int]
        base: int
        offsets: bytes
        def __init__(self, base: _Optional[int] = ..., offsets: _Optional[bytes] = ...) -> None: ...
    class U64Array(_message.Message):
        __slots__ = ("values",)
        VALUES_FIELD_NUMBER: _ClassVar[int]
        values: bytes
        def __init__(self, values: _Optional[bytes] = ...) -> None: ...
    U16_ARRAY_FIELD_NUMBER: _ClassVar[int]
    U32_ARRAY_FIELD_NUMBER: _ClassVar[int]
    U64_ARRAY_FIELD_NUMBER: _ClassVar[int]
    u16_array: EncodedU64Array.U16Array
    u32_array: EncodedU64Array.U32Array
    u64_array: EncodedU64Array.U64Array
    def __init__(self, u16_array: _Optional[_Union[EncodedU64Array.U16Array, _Mapping]] = ..., u32_array: _Optional[_Union[EncodedU64Array.U32Array, _Mapping]] = ..., u64_array: _Optional[_Union[EncodedU64Array.U64Array, _Mapping]] = ...) -> None: ...
