"""Small cross-encoders for tests: random weights and a vocabulary of their own; nothing is downloaded."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

WORDS = [f"{first}{last}" for first in "bdfgklmnprst" for last in ("a", "e", "i", "o", "u")]


def tiny_folder(folder, *, dropout=0.0, num_labels=1, seed=0):
    """Folder of a Hugging Face sequence classifier with two layers of 16 numbers, and its tokenizer."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
    BertTokenizerFast(str(folder / "vocab.txt"), model_max_length=32).save_pretrained(folder)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=32,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        num_labels=num_labels,
        initializer_range=0.3,
        pad_token_id=0,
    )
    torch.manual_seed(seed)
    BertForSequenceClassification(config).save_pretrained(folder)
    return str(folder)


def tiny_encoder(folder, **options):
    """A CrossEncoder of `tiny_folder`, in training mode."""
    from sentence_transformers import CrossEncoder

    num_labels = options.get("num_labels", 1)
    return CrossEncoder(tiny_folder(folder, **options), num_labels=num_labels, device="cpu").train()


def lists(rng, sizes):
    """Queries, lists of documents and lists of labels; relevant is what has the first of WORDS."""
    queries, docs, labels = [], [], []
    for size in sizes:
        query = str(rng.choice(WORDS))
        texts, own = [], []
        for _ in range(size):
            words = [str(word) for word in rng.choice(WORDS[1:], size=rng.integers(1, 7))]
            relevant = int(rng.random() < 0.3)
            texts.append(" ".join([*words, WORDS[0]] if relevant else words))
            own.append(relevant * int(rng.integers(1, 3)))
        queries.append(query)
        docs.append(texts)
        labels.append(own)
    return queries, docs, labels
