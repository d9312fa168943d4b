"""What users import: FFCV's names, and ours."""

from __future__ import annotations

#: Module of FFCV: names that its documentation and examples import from it, with the arguments of FFCV 1.0.2.
FFCV: dict[str, dict[str, tuple[str, ...]]] = {
    "writer": {"DatasetWriter": ("fname", "fields", "page_size=8388608", "num_workers=-1")},
    "loader": {
        "Loader": (
            "fname",
            "batch_size",
            "num_workers=-1",
            "os_cache",  # True, unless the environment says otherwise
            "order=OrderOption.SEQUENTIAL",
            "distributed=False",
            "seed=None",
            "indices=None",
            "pipelines",
            "custom_fields",
            "drop_last=True",
            "batches_ahead=3",
            "recompile=False",
        ),
        "OrderOption": (),
    },
    "reader": {"Reader": ("fname", "custom_handlers")},
    "fields": {
        "Field": (),
        "BytesField": (),
        "IntField": (),
        "FloatField": (),
        "RGBImageField": (
            "write_mode='raw'",
            "max_resolution=None",
            "smart_threshold=None",
            "jpeg_quality=90",
            "compress_probability=0.5",
        ),
        "NDArrayField": ("dtype", "shape"),
        "JSONField": (),
        "TorchTensorField": ("dtype", "shape"),
    },
    "fields.basics": {"IntDecoder": (), "FloatDecoder": (), "IntField": (), "FloatField": ()},
    "fields.rgb_image": {
        "SimpleRGBImageDecoder": (),
        "RandomResizedCropRGBImageDecoder": ("output_size", "scale=(0.08, 1.0)", "ratio=(0.75, 1.3333333333333333)"),
        "CenterCropRGBImageDecoder": ("output_size", "ratio"),
        "ResizedCropRGBImageDecoder": ("output_size",),
        "RGBImageField": (),
    },
    "fields.decoders": {
        "SimpleRGBImageDecoder": (),
        "RandomResizedCropRGBImageDecoder": (),
        "CenterCropRGBImageDecoder": (),
        "IntDecoder": (),
        "FloatDecoder": (),
        "NDArrayDecoder": (),
        "BytesDecoder": (),
    },
    "fields.ndarray": {"NDArrayField": (), "NDArrayDecoder": (), "TorchTensorField": ()},
    "fields.bytes": {"BytesField": (), "BytesDecoder": ()},
    "fields.json": {"JSONField": ()},
    "transforms": {
        "Convert": ("target_dtype",),
        "Cutout": ("crop_size", "fill=(0, 0, 0)"),
        "ModuleWrapper": ("module",),
        "NormalizeImage": ("mean", "std", "type"),
        "RandomBrightness": ("magnitude", "p=0.5"),
        "RandomContrast": ("magnitude", "p=0.5"),
        "RandomHorizontalFlip": ("flip_prob=0.5",),
        "RandomSaturation": ("magnitude", "p=0.5"),
        "RandomTranslate": ("padding", "fill=(0, 0, 0)"),
        "Squeeze": ("dims",),
        "ToDevice": ("device", "non_blocking=True"),
        "ToTensor": (),
        "ToTorchImage": ("channels_last=True", "convert_back_int16=True"),
        "View": ("target_dtype",),
    },
    "transforms.common": {"Squeeze": ("dims",)},
    "pipeline": {"Compiler": (), "PipelineSpec": ()},
    "pipeline.operation": {"Operation": ()},
    "pipeline.state": {"State": ("jit_mode", "device", "shape", "dtype")},
    "pipeline.allocation_query": {"AllocationQuery": ("shape", "dtype", "device=None")},
    "pipeline.compiler": {"Compiler": ()},
    "pipeline.pipeline_spec": {"PipelineSpec": ("source", "decoder=None", "transforms=None")},
    "traversal_order": {"Sequential": ("loader",), "Random": ("loader",), "QuasiRandom": ("loader",)},
    "traversal_order.base": {"TraversalOrder": ("loader",)},
}

#: What a user may import and rely on; every other module is ours to change.
PUBLIC = (
    "gpubeton",
    "gpubeton.errors",
    "gpubeton.format",
    *(f"gpubeton.{module}" for module in FFCV),
)
